// Package dist tests what `make dist` builds, as its users install it.
//
// The tests of make test build a release for this machine, install its deb in a root of
// their own, upgrade it while a process runs, remove and purge it, follow the recipes of docs/install.md, and run its image. The
// root is the machine's own files below an overlay, with an empty database of packages:
// nothing is downloaded, and nothing of the machine changes.
//
// `make dist-test` has those that download, with the tag tend_dist: a Debian made by
// debootstrap, with systemd as its first process; the rpm; podman; and the release of
// two processors, built twice.
package dist
