"""The POSIX-like file system of the fake, in memory."""
