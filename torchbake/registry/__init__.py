"""A client of the OCI distribution API, with logins and signatures. It knows nothing of releases."""
