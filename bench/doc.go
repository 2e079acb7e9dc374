// Command bench measures tend beside the bare limit of the same machine in the
// same minute: fork, exec and pipes used directly by this process. Client,
// daemon and workload share the machine's cores.
//
//	make bench
//	make bench RECORD=v1.2.0 BESIDE=/path/of/the/tend/before
//	go run ./bench -only 'true|pty' -n 2000
//	go run ./bench -docs
//
// It builds the binary, starts a daemon of its own on a temporary state
// directory, and leaves nothing behind. Bare and tend samples take turns, since
// a machine is never equally fast for long; medians are quoted unless a row
// says otherwise. A missed goal is reported and is no failure; a wrong byte is one.
//
// The state directory lies where TMPDIR says: on a disk, pages that wait to be
// written slow a spool down, and "dd into a file" beside a figure shows how
// much. Other programs on the same cores cost several processes more than one;
// the benchmark says so if there are any.
//
// # Records
//
// Each release has a record, bench/history/NAME.json: all rows, the machine,
// and how busy it was. -record writes it and draws the marked tables and the plot
// of docs/performance.md and docs/durability.md again from the newest record
// (-docs draws alone). So every figure in these tables is one that this program
// has measured, and a test compares. Two versions are compared by -beside, in
// turns in one run; records of different days are not.
//
// # Sandboxes
//
// The rows of sandboxes need root. "By the keeper" is the driver over a keeper, in
// this process: what a sandbox costs without a server. Unshare, bubblewrap and runc
// do the same in turns with it, as far as they are here or Debian has them; one
// that is not here is left out, and a message says so. They give a program new
// namespaces and see the machine's files; only runc has limits, too.
//
// sandbox-hand compares with unshare and an overlay alone, by a script. It needs nothing else, and so it is what
// `make kernel-test` measures on other kernels; with RECORD=NAME its rows are kept, by -emulated.
//
// The rows of computesdk are its public way of measuring, with its npm client, which
// test/conformance/agents pins and installs.
//
// # Images
//
// podman does the same by its command line as tend by its own, in turns, with its files on the same disk, and runc to
// run containers. Both fetch from a registry in this process. These rows take minutes, and are measured only if -only
// names them.
//
// # Services
//
// pm2 and supervisord keep the same small program, one after the other with tend in
// the same run. They are those that test/conformance/supervisors pins and installs,
// which takes Node.js, Python and the network; the rows say what is not installed.
//
// # Clients of other languages
//
// tend's packages for Python and JavaScript and E2B's SDKs run the same login shell and
// read the same output of the same daemon, in turns. The latter are those that
// test/conformance/e2b pins and installs; what cannot be installed is left out.
//
// # The page
//
// Its rows need Chromium and what sdk/web installs for its tests. page.mjs drives the
// browser, without a screen and without a GPU: the same cores draw, and run the daemon. The viewers of a terminal
// are raw sockets that ask as the page does.
//
// # Rules of the clients
//
// The clients are raw sockets with hand-written HTTP/1.1 and Connect framing,
// so that their own cost hides little. They check every length that is announced
// and decode nothing else. The rows of the ordinary client are the exception: it
// is what an SDK has, Connect over net/http, every message decoded, and they are
// compared with os/exec, and with a server that answers the same calls from
// memory: "HTTP alone", which no server over net/http can beat. For ports of sandboxes that
// is a proxy of net/http/httputil alone, before the web server outside. The native API is
// measured through the Go client of this module, as its users see it.
package main
