//go:build linux

package local

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// act is what the test binary does as another user. The status 0 says that it was done, and not
// that it was won.
func act(name string, args []string) int {
	acts := map[string]func([]string) error{"send": actSend, "h2": actH2, "bind": actBind, "hold": actHold, "leave": actLeave,
		"receive": actReceive}
	if err := acts[name](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// actSend sends stdin to an address, and prints the answer, or why there is no connection.
func actSend(args []string) error {
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	c, err := net.Dial(args[0], args[1])
	if err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Print(answerTo(c, string(request)))
	return nil
}

// actH2 sends stdin as the body of POST to a URL over HTTP/2, and prints the answer.
func actH2(args []string) error {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, args[0], os.Stdin)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", args[1])
	res, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	fmt.Printf("HTTP/1.1 %d\r\n%s", res.StatusCode, text)
	return err
}

// actBind tries to listen on a port at all addresses, in all ways, and prints where it could.
func actBind(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"} {
		for _, options := range [][]int{nil, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
			for _, only := range []int{0, 1} { // IPv6 alone
				if err := listenAs(host, port, options, only); err == nil {
					fmt.Printf("%s with %v and %d; ", host, options, only)
				}
			}
		}
	}
	return nil
}

func listenAs(host string, port int, options []int, only int) error {
	ip := net.ParseIP(host)
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: [16]byte(ip.To16()), Port: port})
	if !strings.Contains(host, ":") {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte(ip.To4()), Port: port}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1); err != nil {
			return err
		}
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

// actHold opens connections to an address, sends half a header on each, prints how many there
// are, and holds them until stdin ends.
func actHold(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			break
		}
		if _, err := io.WriteString(c, "GET /-/healthz HTTP/1.1\r\n"); err == nil {
			all = append(all, c)
		}
	}
	fmt.Println(len(all))
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, c := range all {
		c.Close()
	}
	return err
}

// actLeave sends stdin on many connections and ends each at once.
func actLeave(args []string) error {
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for i := range 100 {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		if _, err := c.Write(request); err != nil {
			return err
		}
		if i%2 == 0 {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
		}
		c.Close()
	}
	return nil
}

// actReceive listens on an address for everybody, says so, and prints all that comes until stdin
// ends.
func actReceive(args []string) error {
	syscall.Umask(0)
	l, err := net.Listen(args[0], args[1])
	if err != nil {
		return err
	}
	fmt.Println("listening")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Println("a connection")
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = io.Copy(os.Stdout, c) // until the victim leaves
			}()
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	l.Close()
	return err
}
