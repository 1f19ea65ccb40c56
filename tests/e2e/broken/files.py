"""Images with files that should not be there, or not so; some in a layer that a later one only hides."""

from tests.e2e.broken import Broken

# Put together here, so that no scanner takes this file for a leak.
_KEY = "\n".join(["-----BEGIN " + "OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAA", "-----"])
_TOKEN = "gh" + "p_" + "0123456789abcdefghijklmnopqrstuvwxyz"
_SETXATTR = (
    'python3 -c \'import os; os.setxattr("/usr/bin/cpu", "security.capability", bytes.fromhex('
    '"0100000200200000000000000000000000000000"))\''
)

BROKEN = {
    "files.app-tree": Broken(
        what="a file of the working directory is not the group's",
        commands=("install -o 1001 -g 0 -m 0644 /dev/null /app/notes",),
    ),
    "files.owners": Broken(
        what="a file of www-data's",
        commands=(
            "touch /opt/x",
            "chown 33:33 /opt/x",
        ),
    ),
    "files.read-only": Broken(
        what="group 0 may change the virtual environment", commands=("chmod g+w /opt/venv/pyvenv.cfg",)
    ),
    "files.setuid": Broken(
        what="a setuid program",
        commands=(
            "cp /usr/bin/true /opt/x",
            "chmod 4755 /opt/x",
        ),
    ),
    "files.capabilities": Broken(
        what="a program with CAP_NET_RAW",
        commands=(
            "cp /usr/bin/true /usr/bin/cpu",
            _SETXATTR,
        ),
    ),
    "files.world-writable": Broken(what="a folder for everybody", commands=("mkdir -m 0757 /opt/share",)),
    "files.symlinks": Broken(what="a link to nowhere", commands=("ln -s /usr/bin/python9 /opt/venv/bin/py",)),
    "files.temporary": Broken(what="a build left a file in /tmp", commands=("echo x > /tmp/build.log",)),
    "files.accounts": Broken(
        what="a user without home and group",
        commands=("echo 'old:x:1500:1500::/home/old:/bin/bash' >> /etc/passwd",),
    ),
    "files.known-owners": Broken(
        what="a file of a group of whoever bootstrapped the base",
        commands=("install -g 1500 -m 0644 /dev/null /opt/deb822",),
    ),
    "files.keys": Broken(
        what="a private key under a harmless name",
        copies={"/opt/notes": _KEY},
    ),
    "files.credentials": Broken(
        what="a .netrc that a later layer deletes",
        copies={"/root/.netrc": "machine pypi.example.com login x password y\n"},
        commands=("rm /root/.netrc",),
    ),
    "files.tokens": Broken(
        what="a token in a script, overwritten later",
        copies={"/opt/fetch": f"curl -H 'Authorization: {_TOKEN}'\n"},
        commands=("echo true > /opt/fetch",),
    ),
    "files.git": Broken(
        what="sources with their repository",
        copies={"/opt/source/.git/HEAD": "ref: refs/heads/main\n"},
    ),
    "files.apt-lists": Broken(
        what="apt's lists, deleted one layer too late",
        copies={"/var/lib/apt/lists/deb.example.com_Packages": "Package: x\n"},
        commands=("rm /var/lib/apt/lists/deb*",),
    ),
    "files.caches": Broken(
        what="uv's cache",
        commands=(
            "mkdir -p /root/.cache/uv",
            "echo x > /root/.cache/uv/x",
        ),
    ),
    "files.waste": Broken(
        what="20 MB that a later layer deletes",
        copies={"/opt/data": "\0" * 20971520},
        commands=("rm /opt/data",),
    ),
}
