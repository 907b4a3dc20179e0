"""monocal side by side with the libraries people use: `environment` installs them, `methods` says how each is called,
`cell` measures one of them on one size, `runner` runs the cells, `tables` shows the results."""
