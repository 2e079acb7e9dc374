package native_test

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
)

// listenRole, in the environment, makes the test binary a program that listens at two
// addresses with one port, and says which.
const listenRole = "TEND_TEST_LISTEN"

func listens() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		_, err = net.Listen("tcp4", "127.0.0.2:"+strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString(strconv.Itoa(l.Addr().(*net.TCPAddr).Port) + "\n")
	time.Sleep(time.Hour) // select {} would be a deadlock to a runtime without cgo
}

// The ports of a process are those of its tree, each once; those of all the machine are not
// asked for at once.
func TestThePortsOfAProcess(t *testing.T) {
	c, _ := serve(t, native.Config{Domains: []string{"boxes.test"}})
	ports := func(sel *tendv1.Selector) (*tendv1.PortsResponse, error) {
		resp, err := c.Ports(t.Context(), connect.NewRequest(&tendv1.PortsRequest{Process: sel}))
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	if m := proctest.Value(ports(start(t, c, "exec sleep 1000")))(t); len(m.GetPorts()) != 0 || !slices.Equal(m.GetDomains(), []string{"boxes.test"}) {
		t.Errorf("of one that listens on nothing: %v", m)
	}
	// It is a child that listens.
	id := start(t, c, listenRole+"=1 "+proctest.Value(os.Executable())(t)+" & wait")
	stream := proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: id, Until: &tendv1.WaitRequest_Match_{Match: &tendv1.WaitRequest_Match{Pattern: "^[0-9]+$"}}})))(t)
	defer stream.Close()
	var said string
	for said == "" && stream.Receive() {
		said = string(stream.Msg().GetResult().GetMatch())
	}
	port := proctest.Value(strconv.Atoi(said))(t)
	m := proctest.Value(ports(id))(t)
	if len(m.GetPorts()) != 1 || int(m.GetPorts()[0].GetPort()) != port || !slices.Equal(m.GetPorts()[0].GetAddresses(), []string{"127.0.0.1:" + said, "127.0.0.2:" + said}) {
		t.Errorf("it listens on %s, and there is %v", said, m)
	}
	if _, err := ports(nil); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "name a process") {
		t.Errorf("of all of the machine: %v", err)
	}
}
