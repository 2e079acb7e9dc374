// Package config reads tend.yaml, the file in which services are declared.
//
//	services:
//	  db:
//	    command: [postgres, -D, data]
//	    health: {tcp: 5432}
//	  web:
//	    command: npm run dev          # a line is run by /bin/sh -c
//	    cwd: app
//	    env: {PORT: 3000}
//	    depends_on: {db: ready}
//	    health: {http: "http://localhost:3000/health", interval: 2s, timeout: 1s}
//	    restart: on-failure
//
// The file is YAML 1.2, and so JSON too. It is read strictly: a key that nobody
// knows, a value of the wrong kind or out of its bounds, a dependency on a service
// that there is not, and a cycle of dependencies are refused. All that is wrong is
// reported at once, each [Problem] with its line and column, and with the key that
// was probably meant.
//
// A scalar is taken as it is written: VERSION: 1.10 is the text "1.10", and on, no
// and 0755 are no booleans and no numbers where a text is asked for. Nothing in the
// file is expanded: a command that needs a variable is a line, which the shell
// expands, and secrets are in files that env_file names. Keys of the top level that
// begin with "x-" are passed over; they may hold anchors for others.
//
// The types below are the one source of all of it: a tag has a field's key, its
// default, its bounds and what it means. [Schema] is the same as JSON schema, and
// [Reference] as a table for people.
//
// A duration is a number with a unit (500ms, 2s, 1m30s); a plain number is seconds.
// A size is a number of bytes, or one with a unit: KiB, MiB, GiB, or KB, MB, GB.
package config
