"""Images with files that should not be there, or not so; some in a layer that a later one only hides."""

from tests.e2e.broken import Broken, as_root

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
        dockerfile=as_root("install -o 1001 -g 0 -m 0644 /dev/null /app/notes"),
    ),
    "files.owners": Broken(what="a file of www-data's", dockerfile=as_root("touch /opt/x", "chown 33:33 /opt/x")),
    "files.read-only": Broken(
        what="group 0 may change the virtual environment", dockerfile=as_root("chmod g+w /opt/venv/pyvenv.cfg")
    ),
    "files.setuid": Broken(what="a setuid program", dockerfile=as_root("cp /usr/bin/true /opt/x", "chmod 4755 /opt/x")),
    "files.capabilities": Broken(
        what="a program with CAP_NET_RAW",
        dockerfile=as_root("cp /usr/bin/true /usr/bin/cpu", _SETXATTR),
    ),
    "files.world-writable": Broken(what="a folder for everybody", dockerfile=as_root("mkdir -m 0757 /opt/share")),
    "files.symlinks": Broken(what="a link to nowhere", dockerfile=as_root("ln -s /usr/bin/python9 /opt/venv/bin/py")),
    "files.temporary": Broken(what="a build left a file in /tmp", dockerfile=as_root("echo x > /tmp/build.log")),
    "files.accounts": Broken(
        what="a user without home and group",
        dockerfile=as_root("echo 'old:x:1500:1500::/home/old:/bin/bash' >> /etc/passwd"),
    ),
    "files.keys": Broken(
        what="a private key under a harmless name",
        files={"notes": _KEY},
        dockerfile="COPY notes /opt/notes\n",
    ),
    "files.credentials": Broken(
        what="a .netrc that a later layer deletes",
        files={"netrc": "machine pypi.example.com login x password y\n"},
        dockerfile="COPY netrc /root/.netrc\n" + as_root("rm /root/.netrc"),
    ),
    "files.tokens": Broken(
        what="a token in a script, overwritten later",
        files={"fetch": f"curl -H 'Authorization: {_TOKEN}'\n", "clean": "true\n"},
        dockerfile="COPY fetch /opt/fetch\nCOPY clean /opt/fetch\n",
    ),
    "files.git": Broken(
        what="sources with their repository",
        files={"HEAD": "ref: refs/heads/main\n"},
        dockerfile="COPY HEAD /opt/source/.git/HEAD\n",
    ),
    "files.apt-lists": Broken(
        what="apt's lists, deleted one layer too late",
        files={"list": "Package: x\n"},
        dockerfile="COPY list /var/lib/apt/lists/deb.example.com_Packages\n" + as_root("rm /var/lib/apt/lists/deb*"),
    ),
    "files.caches": Broken(
        what="uv's cache", dockerfile=as_root("mkdir -p /root/.cache/uv", "echo x > /root/.cache/uv/x")
    ),
    "files.waste": Broken(
        what="20 MB that a later layer deletes",
        dockerfile=as_root("head -c 20971520 /dev/zero > /opt/data") + as_root("rm /opt/data"),
    ),
}
