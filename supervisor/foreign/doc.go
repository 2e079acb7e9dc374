// Package foreign reads the files of other supervisors, and writes them as a tend.yaml.
//
//	pm2              ecosystem.config.* and process.* as JSON or YAML; as JavaScript what
//	                 node makes of it
//	Procfile         lines NAME: COMMAND
//	process-compose  YAML with the key processes
//
// What has no equivalent becomes a comment beside the service, and is returned as a note:
// nothing is dropped in silence. Defaults that differ are written down, so that a program
// is ended as it is used to: pm2 sends SIGINT and waits for 1.6 s.
//
// [Project] makes one of what lies in the directory of a project: its scripts, lock files,
// the framework.
//
// Nothing is run and no file is read here; whether a script is there is asked of the
// caller.
package foreign
