package owner

// NoSandbox owns the daemon's own files where the daemon is root. It is an id that no sandbox
// has, so no root of one can open them. On the way to a file it counts as root.
const NoSandbox = 0x7ffdffff
