#!/usr/bin/env bash
# programs.sh FOLDER: the programs of others that the tests use, where they are not installed:
# Prometheus and Alertmanager, PostgreSQL, PgBouncer, HAProxy.
#
# The programs of Debian's packages, and the libraries that they need, are unpacked into FOLDER:
# nothing is installed, no service is started, and root is not needed. FOLDER/bin starts each of them
# with those libraries: it is what a person puts on PATH. Where that cannot be done it says what is
# missing, and the tests that need the programs are skipped with that reason.
set -euo pipefail
shopt -s nullglob
folder=$1

# What runs, and the package that has it.
needed="
prometheus            prometheus
promtool              prometheus
amtool                prometheus-alertmanager
alertmanager          prometheus-alertmanager
postgres              postgresql
pgbouncer             pgbouncer
haproxy               haproxy
"

# Debian's Alertmanager reads its templates from this place, wherever it is itself.
templates=/usr/share/prometheus/alertmanager

# Where programs are looked for; tests/support/programs.py looks in the same places.
places() {
  local place
  printf %s "$PATH"
  for place in /usr/sbin /usr/lib/postgresql/*/bin "$folder"/bin; do
    printf :%s "$place"
  done
}

libraries() {
  local IFS=:
  local found=("$folder"/{lib,usr/lib}/*-linux-gnu)
  echo "${found[*]}"
}

runs() {
  local path option=--version
  path=$(PATH=$(places) command -v "$1") || return
  [ "$1" != haproxy ] || option=-v
  case $path in
    "$folder"/*) "$path" $option >/dev/null 2>&1 ;;
  esac
}

# Debian calls Alertmanager by another name than its makers do.
missing() {
  local name package
  while read -r name package; do
    [ -z "$name" ] || runs "$name" || runs "prometheus-$name" || echo "$name $package"
  done <<<"$needed"
}

# A package list of one's own, so that neither an old list nor the lack of one matters.
private_apt() {
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  apt-get -qq -o Dir::State="$work" -o Dir::State::status=/var/lib/dpkg/status \
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"
}

# What installing the packages would add to this machine: they themselves and libraries, without the compiler.
to_unpack() {
  private_apt --simulate --no-install-recommends install "$@" |
    sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -E '^(lib|prometheus|postgresql-[0-9]|postgresql-client-[0-9]|pgbouncer$|haproxy$)' |
    grep -vE '^lib(llvm|js-|.*-perl$)'
}

fetch() (
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  cd "$work"
  private_apt update && packages=$(to_unpack "$@") || return
  # shellcheck disable=SC2086 # a list of names
  private_apt download $packages || return
  mkdir unpacked
  for package in *.deb; do
    dpkg-deb -x "$package" unpacked
  done
  rm -rf unpacked/usr/share/doc unpacked/usr/lib/postgresql/*/lib/{bitcode,llvmjit*}
  mkdir -p "$folder"
  cp -a unpacked/. "$folder"
)

# Leads the unpacked Alertmanager to the templates that were unpacked beside it: in the place of theirs
# it has, in as many bytes, a descriptor that whoever starts it has to open.
redirect() {
  local through
  printf -v through "%-${#templates}s" /proc/self/fd/9
  LC_ALL=C sed -i "s|$templates|${through// //}|g" "$1"
}

# Starts each unpacked program with what was unpacked beside it, wherever FOLDER is moved.
wrap() {
  local path found opened
  [ -d "$folder" ] || return 0
  mkdir -p "$folder/bin"
  found=$(libraries)
  for path in "$folder"/usr/{bin,sbin}/* "$folder"/usr/lib/postgresql/*/bin/*; do
    opened=
    if [ "${path##*/}" = prometheus-alertmanager ]; then
      redirect "$path"
      opened="9<\"\$root$templates\""
    fi
    cat >"$folder/bin/${path##*/}" <<END
#!/bin/sh
root=\$(cd "\$(dirname "\$(readlink -f "\$0")")/.." && pwd)
export LD_LIBRARY_PATH="${found//"$folder"/\$root}\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "${path/#"$folder"/\$root}" "\$@" $opened
END
    chmod +x "$folder/bin/${path##*/}"
  done
}

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
mapfile -t packages < <(missing | cut -d ' ' -f 2 | sort -u)
if [ ${#packages[@]} -gt 0 ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  fetch "${packages[@]}" || true
fi
wrap
[ ! -d "$folder/bin" ] || echo "What is not installed here is in $folder/bin: put that on PATH to run it by hand."
[ -n "$(missing)" ] || exit 0
echo "not found, and not to be had through apt-get: $(missing | cut -d ' ' -f 1 | paste -sd ' ')." \
  "Tests that use these programs are skipped; put them on PATH to run them." >&2
