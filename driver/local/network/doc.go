// Package network is the way out of a sandbox's own network.
//
// The kernel's part: in the sandbox's namespace every address is local (a route of type
// local for all of them, on lo), and nf_tables hands TCP and UDP that is for nobody
// inside to one listening port (tproxy), where they arrive with the address they were meant
// for. So there is no interface, no address and no rule on the machine, and what no rule
// takes goes nowhere.
//
// The server's part ([Proxy]): it looks at where a connection wants to go, and makes it
// anew from the machine's own network, or cuts it. Two things are asked, in this order:
//
//  1. May any sandbox go there ([Host])? Not to the machine itself, which its routes
//     tell, nor to links, groups and metadata of clouds. The address that is asked about is
//     the one that is dialled next; a name is never looked up in between.
//  2. May this one ([Policy])? Rules by address are compared with the address. Rules by
//     name are compared with the names that the sandbox got this address for, as its
//     questions go through here, and with what TLS or HTTP says.
//
// Programs inside cannot change any of it: they lack CAP_NET_ADMIN. They can connect to the
// listening port itself, as its own destination, which is refused.
//
// Two servers may listen in one namespace for a moment (SO_REUSEPORT), so that the next
// one begins before the last has ended. A kernel without a listener drops what comes, and
// the next try of TCP finds the next server.
package network
