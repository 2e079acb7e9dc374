// Package template reads build files, which describe how to build a template of
// sandboxes. A build file has one instruction on each line:
//
//	# a comment, as every line that begins with #
//	FROM    host | NAME[:TAG] | dir:PATH | image:NAME
//	ENV     NAME=VALUE [NAME=VALUE …]
//	RUN     command line
//	COPY    SOURCE [SOURCE …] DESTINATION
//	WORKDIR DIRECTORY
//	USER    NAME
//	START   command line
//	READY   command line
//
// FROM is the first instruction and may be omitted: then the base is the template base,
// as with "FROM host". NAME is another template; dir: is a directory with a
// whole root, relative to the build file; image: is an OCI image, such as image:python:3,
// which is fetched if it is not here. START runs in each sandbox
// that is created from the template, and READY exits with 0 when START is ready; each
// may appear at most once.
//
// Words of ENV, COPY, WORKDIR and USER are separated by blanks; a word with blanks
// stands in "double quotes", in which \" and \\ are a quote and a backslash. RUN, START
// and READY take the rest of the line as it is. A line that ends with a backslash
// continues on the next one. Sources of COPY are paths below the directory of the build
// file, and may have the patterns of path.Match in their last name.
//
// Everything else is an error, which names line and column.
package template
