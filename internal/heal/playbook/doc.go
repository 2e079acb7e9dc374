// Package playbook knows what can be repaired by rule: a package that is not installed,
// a tracked file that is gone, a port that is held by what a crash left behind.
//
// A [Plan] says what is to be done; the package itself changes nothing, and starts
// nothing but git, to read the index. [Books.Match] looks at a service's log and at
// its files, and returns the plans that fit, best first.
//
// A book is a YAML file; its name is that of the file. Those of the package are in
// books/, and a project adds its own in .tend/playbooks:
//
//	why: the table ${table} is not there yet
//	when:
//	  signal: [exit, flap]
//	  log: 'relation "(?P<table>[a-z_]+)" does not exist'
//	  exists: [migrations/*.sql]
//	do:
//	  - run: [npm, run, migrate]
//
// # When a book fits
//
// All that "when" says must hold: the signal is one of the list, the exit code or the
// signal that ended the process is, one of the expressions of "log" and one of "error"
// match, each glob of "exists" names something below the project's root, and none of
// "missing" does. "log" is searched in all that the service wrote since its newest
// start, "error" in the last report of an error in it alone: a warning at the start
// is no reason for the crash that came later.
//
// # What a log may do
//
// A log is data, and whoever can make a service write a line can write any line. So a
// value that an expression captures is checked before it is used, by the kind that
// "where" gives it:
//
//	word     letters, digits and @ . _ / + : = , - (the default). It does not begin
//	         with - or /, and has no ".."
//	number   digits
//	name     the name of a variable
//	package  the name of a package that the project's lock file holds
//	path     a file or directory below the root that is there; no part of the path is
//	         a symbolic link
//	deleted  a file that git tracks and that is gone
//	port     one of the ports on which the service is to listen
//
// A book of which a value is none of its kind does not fit. A value becomes one
// argument of a program, never a part of its name, of a shell's line or of any other
// program's text; a file that uses one there is refused. Whatever a book says, only a
// tracked file that is gone is restored, only a derived directory with nothing tracked
// in it is removed, only an untracked log file is truncated, and only a port of the
// service is freed.
package playbook
