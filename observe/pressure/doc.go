// Package pressure tells when a tree of processes is short of something: memory,
// descriptors, processes, or room on a disk. [System.Look] reads what the kernel says
// at a moment; [Judge], which reads nothing, says from looks that follow each other
// what has become short. The load average means nothing here: it counts neighbours, and
// those who wait for a disk.
//
// # Memory
//
// A process is in a control group, and the group in others. Each may have a limit
// (memory.max and memory.high of version 2, memory.limit_in_bytes of version 1, and
// hierarchical_memory_limit for groups that cannot be seen), and the machine is the
// last of them. The level that counts is the one that is nearest to its limit. There
//
//	working = usage − inactive_file         as kubelet has it; what the kernel takes back first is no use
//	held    = usage − inactive_file − active_file
//	machine: working = held = MemTotal − MemAvailable
//
// Swap that is free is added to a limit. Memory is short when one of these holds:
//
//   - Stalls (PSI, memory.pressure of the group, else of the machine): all tasks waited
//     for memory for 10 % of the last 10 s, or some did for 40 % of the last minute, at
//     two looks in a row, while working is 80 % of the limit and held half of it.
//   - Growth: held is 80 % of the limit, has grown three times by 1/256 of the limit or
//     more without a fall between, and would be at the limit within 30 s as slowly as it
//     did so at the slowest. Looks at which it stood still do not count.
//   - Level: held is above its share of the limit at Looks of the newest Of looks;
//     working in place of held where the kernel tells of no stalls.
//
// A kernel that has triggers says at once when stalls begin ([System.Trigger]), so that
// looks can be rare while nothing happens.
//
// # The rest
//
// Descriptors are counted for the process of the tree that is nearest to its soft limit,
// and processes for the control group that is (pids.max). A disk is short when less than
// a number of bytes is free, or 5 % of a disk that is small, or 1 % of its inodes.
//
// [Group.OOMKills] counts processes of a group that the kernel has ended for want of
// memory.
package pressure
