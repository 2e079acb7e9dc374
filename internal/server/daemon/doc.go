// Package daemon assembles the server role of tend serve: the processes of the keeper,
// the driver and the parts (package internal/server/parts), and the server around them. It also
// manages the other roles: it counts their restarts, upgrades them and shuts them down.
package daemon
