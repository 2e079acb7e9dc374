// Package config reads tend.yaml, the file that declares services.
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
// The file is YAML 1.2, and so JSON too. It is read strictly: an unknown key, a value
// of the wrong kind or out of range, a dependency on an unknown service, and a cycle of
// dependencies are refused. All problems are reported at once, each [Problem] with its
// line and column, and with the key that was probably meant.
//
// A scalar is used as it is written: VERSION: 1.10 is the text "1.10", and on, no and
// 0755 are neither booleans nor numbers where a text is expected. Nothing in the file
// is expanded: a command that needs a variable must be a line, which the shell expands,
// and secrets belong in files that env_file names. Top-level keys that begin with "x-"
// are ignored; they may hold anchors for others.
//
// The types below are the single source of all this: a tag has a field's key, its
// default, its bounds and its meaning. [Schema] returns the same as JSON schema, and
// [Reference] as a table for people.
//
// A duration is a number with a unit (500ms, 2s, 1m30s); a plain number is seconds.
// A size is a number of bytes, or one with a unit: KiB, MiB, GiB, or KB, MB, GB.
package config
