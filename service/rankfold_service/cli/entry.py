"""Where the command `rankfold` starts: so little that Ctrl-C meets next to nothing unprepared."""

from __future__ import annotations

INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit code.

    Ctrl-C ends the process at once while its modules are imported, and once it has done its work:
    there is nothing to tidy then, and what is raised in the middle of an import shows where.
    """
    try:
        import os  # noqa: PLC0415 - even these take a moment
        import signal  # noqa: PLC0415

        before = signal.getsignal(signal.SIGINT)

        def catch(handler: object) -> None:
            if before is signal.default_int_handler:  # and not ignored, as of a job of a script
                signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]

        def leave(*_: object) -> None:
            os._exit(INTERRUPTED)

        catch(leave)
        from rankfold_service.cli.main import main as run  # noqa: PLC0415

        code = run(begin=lambda: catch(before))
        catch(leave)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
