"""What runs inside a sandbox on our behalf, and how the host talks to it."""
