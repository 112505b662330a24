"""``parley doctor``: real checks of a deployment before it gets traffic."""
