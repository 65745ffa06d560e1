"""`containers/launch hub`: a class on JupyterHub."""
