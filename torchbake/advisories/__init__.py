"""Known vulnerabilities of packages, from files of Debian, OSV and scanners."""
