"""The same surface without `await`, for scripts and blocking programs."""

import sys

import sandboxio

TARGET = sys.argv[1] if len(sys.argv) > 1 else "docker://python:3.12-slim"


def main() -> None:
    with sandboxio.create_sync(TARGET, timeout=60) as sb:
        print(sb.run_code("print(6 * 7)").stdout, end="")
        sb.files.write("note.txt", "written without await\n")
        with sb.stream("cat note.txt", timeout=10) as proc:
            for chunk in proc:
                print(chunk.data.decode(), end="")


if __name__ == "__main__":
    main()
