// Package importer reads the files of other supervisors, and writes them as a tend.yaml.
//
//	pm2              ecosystem.config.* and process.* as JSON or YAML; as JavaScript what
//	                 node makes of it
//	Procfile         lines NAME: COMMAND
//	process-compose  YAML with the key processes
//
// A setting without an equivalent becomes a comment beside the service, and is returned
// as a note: nothing is dropped silently. Defaults that differ are written explicitly,
// so that a program is ended as it expects: pm2 sends SIGINT and waits for 1.6 s.
//
// [Project] generates a tend.yaml from the files in a project's directory: its scripts,
// lock files, the framework.
//
// The package runs nothing and reads no file; it asks the caller whether a script
// exists.
package importer
