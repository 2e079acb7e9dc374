// Package services is the part of the server that keeps declared services running: a
// [run.Supervisor] over the processes of the machine and of its sandboxes, and what the
// ServiceService of tend's own API is answered with. A server that dies leaves the
// services up, and the next one goes on with them.
//
// A daemon has the services of one file at a time. Another file is refused while one of
// its services is wanted or lives: it would end what it does not declare.
//
// # Files in the directory
//
//	NAME.json    a service, with its environment (0600); see package run
//	file         the path of the file that declares them
//
// A record that cannot be read does not keep the server from serving: each call about
// services says what is wrong then, and none is started or ended.
package services
