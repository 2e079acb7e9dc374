// Package dockerfile reads Dockerfiles: which stages a target needs, in which order, and what
// of them is not done here. It reads by the parser of BuildKit, so that a file means the same.
//
// Parse refuses, with line and column and before anything runs, what a build could not do:
//
//	FROM --platform of another machine
//	RUN --mount=type=ssh, --network=host, --security=insecure, --device
//	ADD of a git repository
//	ONBUILD in the file itself; that of a base image runs
//
// EXPOSE, LABEL, MAINTAINER, STOPSIGNAL and VOLUME change nothing of a sandbox; "# syntax=" is
// not followed. [Plan].Notes says so where somebody may miss it.
package dockerfile
