package native

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

type admin struct {
	daemon Admin
	page   Page

	openDoor func() (string, error) // nil: there is none
}

func unsupported(what string) error {
	return wireError(fmt.Errorf("%s of this server: %w", what, process.ErrUnsupported))
}

func (a *admin) Status(ctx context.Context, _ *connect.Request[tendv1.StatusRequest]) (*connect.Response[tendv1.StatusResponse], error) {
	if a.daemon == nil {
		return nil, unsupported("status")
	}
	return answer(a.daemon.Status(ctx))
}

func (a *admin) Upgrade(ctx context.Context,
	req *connect.Request[tendv1.UpgradeRequest]) (*connect.Response[tendv1.UpgradeResponse], error) {
	if a.daemon == nil {
		return nil, unsupported("upgrade")
	}
	if b := req.Msg.GetBinary(); b != "" && !filepath.IsAbs(b) {
		return nil, wireError(&process.InvalidError{Field: "binary", Reason: fmt.Sprintf("is %q; an absolute path is needed", b)})
	}
	return answer(a.daemon.Upgrade(ctx, req.Msg))
}

func (a *admin) Shutdown(ctx context.Context,
	req *connect.Request[tendv1.ShutdownRequest]) (*connect.Response[tendv1.ShutdownResponse], error) {
	if a.daemon == nil {
		return nil, unsupported("shutdown")
	}
	return answer(&tendv1.ShutdownResponse{}, a.daemon.Shutdown(ctx, req.Msg.GetKeep()))
}

func (a *admin) OpenPage(ctx context.Context,
	req *connect.Request[tendv1.OpenPageRequest]) (*connect.Response[tendv1.OpenPageResponse], error) {
	if a.daemon == nil || a.page == nil {
		return nil, unsupported("the page")
	}
	status, err := a.daemon.Status(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	base, reads := status.GetUrl(), req.Msg.GetReadOnly()
	door := !strings.HasPrefix(base, "http")
	if door {
		if a.openDoor == nil {
			return nil, unsupported("the page")
		}
		if base, err = a.openDoor(); err != nil {
			return nil, wireError(err)
		}
	}
	resp := &tendv1.OpenPageResponse{Url: base + "/ui/", Code: a.page.Code(reads, door), ReadOnly: reads}
	if reads && resp.GetCode() == "" {
		return nil, wireError(errNoLogin)
	}
	return connect.NewResponse(resp), nil
}

// errNoLogin: there is nobody who could only read.
var errNoLogin = errtext.New("without a token this server asks nobody who they are, so no login can be for reading alone; "+
	"give it a token (tend serve --token-file)", process.ErrUnsupported)

func answer[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(m), nil
}
