// Package services is the part of the server that keeps declared services running: a
// [run.Supervisor] over the processes of the machine and of its sandboxes, and the
// answers of the ServiceService of tend's own API. When a server dies, the services
// keep running, and the next server takes them over.
//
// A daemon has the services of one file at a time. It refuses another file while one of
// its services is wanted or alive, because the other file would end services that it
// does not declare.
//
// # Files in the directory
//
//	NAME.json    a service, with its environment (0600); see package run
//	file         the path of the file that declares them
//
// An unreadable record does not prevent the server from serving: each call about
// services then reports the problem, and no service is started or ended.
package services
