"""Engines in workers of this deployment, from the side of whoever uses them: the link, and who is reached."""
