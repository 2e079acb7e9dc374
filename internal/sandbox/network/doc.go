// Package network connects a sandbox's own network to the outside.
//
// The kernel's part: in the sandbox's namespace every address is local (a route of type
// local for all of them, on lo). nf_tables passes TCP and UDP traffic for destinations
// outside to one listening port (tproxy), where it arrives with its original
// destination address. So there is no interface, no address and no rule on the machine,
// and traffic that no rule matches goes nowhere.
//
// The server's part ([Proxy]): it checks the destination of a connection, and opens a
// new connection from the machine's own network, or cuts it. It makes two checks, in
// this order:
//
//  1. May any sandbox connect there ([Host])? Never to the machine itself, which its
//     routes identify, nor to its links, multicast addresses and cloud metadata services.
//     The checked address is the one that is dialled next; no name is looked up in
//     between.
//  2. May this sandbox connect there ([Policy])? Rules by address are compared with the
//     address. Rules by name are compared with the names for which the sandbox got this
//     address, as its DNS queries go through here, and with the name in TLS or HTTP.
//
// Programs inside cannot change any of this, because they lack CAP_NET_ADMIN. They can
// connect directly to the listening port; such a connection, whose destination is the
// port itself, is refused.
//
// Two servers may listen in one namespace for a moment (SO_REUSEPORT), so that the next
// one starts before the last one has ended. Without a listener the kernel drops
// packets, and the next TCP retry finds the next server.
package network
