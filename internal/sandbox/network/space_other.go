//go:build !linux

package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Space needs Linux.
type Space struct{}

// OpenSpace fails.
func OpenSpace(string) (*Space, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (s *Space) Close() error { return nil }

// Loopback fails.
func (s *Space) Loopback() error { return errors.ErrUnsupported }

// Dial fails.
func (s *Space) Dial(context.Context, netip.AddrPort) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// DialUDP fails.
func (s *Space) DialUDP(netip.AddrPort) (*net.UDPConn, error) { return nil, errors.ErrUnsupported }

func (s *Space) udp(netip.AddrPort, netip.AddrPort) (*net.UDPConn, error) {
	return nil, errors.ErrUnsupported
}

// Listen fails.
func (s *Space) Listen(netip.AddrPort) (net.Listener, error) { return nil, errors.ErrUnsupported }

func (s *Space) listen(netip.AddrPort) (*net.TCPListener, *net.UDPConn, error) {
	return nil, nil, errors.ErrUnsupported
}

func (s *Space) configure(bool) error           { return errors.ErrUnsupported }
func (s *Space) route(netip.Addr) route         { return routeNone }
func (s *Space) hasIPv6() bool                  { return false }
func openFiles() uint64                         { return 0 }
func destination([]byte) (netip.AddrPort, bool) { return netip.AddrPort{}, false }
func (s *Space) isMachines() (bool, error)      { return true, nil }

var errMachines = errors.ErrUnsupported

func probe() error { return errors.ErrUnsupported }

// bytesOf counts nothing here.
func bytesOf(*net.TCPConn) (received, sent int64) { return 0, 0 }
