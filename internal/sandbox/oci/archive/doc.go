// Package archive reads images from tars, and writes them ([Write]): those of "docker save" and "podman save", OCI
// layouts, and whole roots as of "docker export" or debootstrap. Which of them a tar is, its
// content decides and not its name:
//
//	manifest.json, a list of images with Config and Layers   of docker save
//	oci-layout and index.json                                an OCI layout
//	anything else                                            a whole root
//
// A tar comes as a stream and is written to a file first, uncompressed if gzip or zstd has
// compressed it, because what says which image is in it may come last. Of an index the manifest
// for this machine is taken. Nothing in the tar is followed out of it: a link there names
// another entry.
package archive
