"""The report: run folders become tables, figures and a web page. Needs no JAX."""
