// Package view has a project where a repair can hurt nothing: a sandbox with a copy of it, which is
// thrown away.
//
// What a repair has changed is a [Set]: files by their paths, kept by whoever repairs, not in a
// sandbox. Each command ([View.Exec]) and each run of the service ([View.Run]) has a new sandbox, into
// which the set is written first. What a command changes is told, and whoever repairs decides what of
// it comes into the set. What a run of the service writes goes with its sandbox, and so can be mixed
// up with no repair.
//
// The sandbox is made as all others are, over the API of the daemon: it has its own network, which
// leads nowhere, its own processes and limits. It sees the project at its real path, programs of the
// machine, and what else the service's PATH and interpreter lead to. For a service in a sandbox it is
// made of a snapshot of that one.
//
// A killed owner leaves sandboxes behind; [Sweep] removes them, and without it their time does.
package view
