#!/usr/bin/env bash
# programs.sh FOLDER: Prometheus and Alertmanager for the tests, where they are not installed.
#
# The programs of Debian's packages are put into FOLDER: nothing is installed, no service is
# started, and root is not needed. Where that cannot be done it says what is missing, and the
# tests that need the programs are skipped with that reason.
set -euo pipefail
folder=$1

missing() {
  local name
  for name in prometheus promtool amtool; do
    command -v "$name" >/dev/null || echo "$name"
  done
  command -v prometheus-alertmanager >/dev/null || command -v alertmanager >/dev/null || echo alertmanager
}

# A package list of one's own, so that neither an old list nor the lack of one matters.
private_apt() {
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  apt-get -qq -o Dir::State="$work" -o Dir::State::status=/var/lib/dpkg/status \
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"
}

fetch() (
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  cd "$work"
  private_apt update && private_apt download prometheus prometheus-alertmanager || return
  for package in *.deb; do
    dpkg-deb -x "$package" unpacked
  done
  rm -rf "$folder"
  mv unpacked/usr/bin "$folder"
)

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
PATH="$PATH:$folder"
[ -n "$(missing)" ] || exit 0
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && fetch && [ -z "$(missing)" ]; then
  exit 0
fi
echo "not found, and not to be had through apt-get: $(missing | paste -sd ' ')." \
  "Tests with the real Prometheus are skipped; put these programs on PATH to run them." >&2
