"""python -m moonshard, and the command moonshard: becomes the program."""
import sys

from .launch import become

VIEWER = "moonshard-view"


def main():
    become("moonshard", sys.argv[1:])


def view():
    become(VIEWER, sys.argv[1:])


if __name__ == "__main__":
    main()
