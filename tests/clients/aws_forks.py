"""Run commands of the AWS CLI in forks of one process, because importing the program takes longer than most commands.

Each line of standard input is a JSON object with the command's `arguments`, its `environment`, its `folder`, and the
files `out` and `err` that receive its output. The exit status is answered as a line on standard output."""

import json
import os
import sys
from typing import Any

from awscli import clidriver


def main() -> None:
    clidriver.create_clidriver().session.get_service_model("s3")  # what each command loads
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            sys.exit(run(asked))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def run(asked: dict[str, Any]) -> int:
    """Become the process that *asked* describes, and run its command. Answers its exit status."""
    own = {"AWS_DATA_PATH": os.environ["AWS_DATA_PATH"]}  # the program set it when it was imported
    os.environ.clear()
    os.environ.update(asked["environment"] | own)
    os.chdir(asked["folder"])
    for descriptor, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    sys.argv = ["aws", *asked["arguments"]]
    status: int = clidriver.main()
    return status


if __name__ == "__main__":
    main()
