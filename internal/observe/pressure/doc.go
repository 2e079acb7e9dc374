// Package pressure detects when a tree of processes is short of a resource: memory,
// descriptors, processes, or disk space. [System.Look] reads the kernel's values at one
// moment; [Judge], which reads nothing, decides from successive looks what has become
// short. The load average is not used, because it also counts other programs, and tasks
// that wait for a disk.
//
// # Memory
//
// A process is in a control group, and that group is in others. Each may have a limit
// (memory.max and memory.high of version 2, memory.limit_in_bytes of version 1, and
// hierarchical_memory_limit for groups that are not visible); the machine is the
// outermost level. The level that is nearest to its limit counts. There
//
//	working = usage − inactive_file         as kubelet has it; what the kernel takes back first is no use
//	held    = usage − inactive_file − active_file
//	machine: working = held = MemTotal − MemAvailable
//
// Free swap is added to a limit. Memory is short when one of these holds:
//
//   - Stalls (PSI, memory.pressure of the group, else of the machine): all tasks waited
//     for memory for 10 % of the last 10 s, or some did for 40 % of the last minute, at
//     two looks in a row, while working is 80 % of the limit and held half of it.
//   - Growth: held is 80 % of the limit, has grown three times by 1/256 of the limit or
//     more without a fall between, and would reach the limit within 30 s at the slowest
//     of these growth rates. Looks without a change do not count.
//   - Level: held is above its share of the limit at Looks of the newest Of looks; if
//     the kernel does not report stalls, working is used instead of held.
//
// A kernel with triggers reports at once when stalls begin ([System.Trigger]), so looks
// can be rare while nothing happens.
//
// # The rest
//
// Descriptors are counted for the process of the tree that is nearest to its soft
// limit, and processes for the control group that is nearest to its limit (pids.max). A
// disk is short when less than a number of bytes is free, or less than 5 % of a small
// disk, or less than 1 % of its inodes.
//
// [Group.OOMKills] counts the processes of a group that the kernel killed because
// memory ran out.
package pressure
