package native

import (
	"context"
	"errors"
	"maps"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	pb "github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/lib/onexit"
	"github.com/tend-run/tend/internal/protocol/module"
)

// reads says of each method whether it only reads: it changes nothing, and nothing in its
// answers gives rights that a [module.Reader] has not. Files do not, since the daemon's own
// token may be one; neither does what makes tokens and codes. A method that is not here is
// no reading one, and fails TestEachMethodIsKnownToReadOrNot.
var reads = map[string]bool{
	pb.ProcessServiceHelloProcedure:       true,
	pb.ProcessServiceStartProcedure:       false,
	pb.ProcessServiceGetProcedure:         true,
	pb.ProcessServiceListProcedure:        true,
	pb.ProcessServiceReadProcedure:        true,
	pb.ProcessServiceRunProcedure:         false,
	pb.ProcessServiceWriteProcedure:       false,
	pb.ProcessServiceWriteStreamProcedure: false,
	pb.ProcessServiceResizeProcedure:      false,
	pb.ProcessServiceSignalProcedure:      false,
	pb.ProcessServiceKillProcedure:        false,
	pb.ProcessServiceWaitProcedure:        true,
	pb.ProcessServicePortsProcedure:       true,
	pb.ProcessServiceTrimProcedure:        false,
	pb.ProcessServicePinProcedure:         false,
	pb.ProcessServiceRemoveProcedure:      false,
	pb.ProcessServiceEventsProcedure:      true,

	pb.ViewServiceViewProcedure: true,
	pb.ViewServiceGrepProcedure: true,

	pb.AdminServiceStatusProcedure:   true,
	pb.AdminServiceUpgradeProcedure:  false,
	pb.AdminServiceShutdownProcedure: false,
	pb.AdminServiceOpenPageProcedure: false,

	pb.SandboxServiceCreateProcedure:         false,
	pb.SandboxServiceGetProcedure:            true,
	pb.SandboxServiceListProcedure:           true,
	pb.SandboxServiceUpdateProcedure:         false,
	pb.SandboxServiceStartProcedure:          false,
	pb.SandboxServiceStopProcedure:           false,
	pb.SandboxServicePauseProcedure:          false,
	pb.SandboxServiceResumeProcedure:         false,
	pb.SandboxServiceDestroyProcedure:        false,
	pb.SandboxServiceSnapshotProcedure:       false,
	pb.SandboxServiceSnapshotsProcedure:      true,
	pb.SandboxServiceDeleteSnapshotProcedure: false,
	pb.SandboxServiceForkProcedure:           false,
	pb.SandboxServiceMetricsProcedure:        true,
	pb.SandboxServiceAccessProcedure:         false,
	pb.SandboxServiceTemplatesProcedure:      true,
	pb.SandboxServiceDeleteTemplateProcedure: false,
	pb.SandboxServiceBuildTemplateProcedure:  false,
	pb.SandboxServiceFollowBuildProcedure:    true,

	pb.ImageServiceListImagesProcedure:  true,
	pb.ImageServiceGetImageProcedure:    true,
	pb.ImageServiceImportImageProcedure: false,
	pb.ImageServicePullImageProcedure:   false,
	pb.ImageServiceExportImageProcedure: false,
	pb.ImageServiceRemoveImageProcedure: false,
	pb.ImageServicePruneImagesProcedure: false,

	pb.FileServiceStatFileProcedure:   false,
	pb.FileServiceListFilesProcedure:  false,
	pb.FileServiceReadFileProcedure:   false,
	pb.FileServiceFileBeforeProcedure: false,
	pb.FileServiceWriteFileProcedure:  false,
	pb.FileServiceMakeDirProcedure:    false,
	pb.FileServiceMoveFileProcedure:   false,
	pb.FileServiceRemoveFileProcedure: false,

	pb.ServiceServiceApplyProcedure:           false,
	pb.ServiceServiceStartProcedure:           false,
	pb.ServiceServiceStopProcedure:            false,
	pb.ServiceServiceRestartProcedure:         false,
	pb.ServiceServiceListProcedure:            true,
	pb.ServiceServiceWatchProcedure:           true,
	pb.ServiceServiceListEpisodesProcedure:    true,
	pb.ServiceServiceGetEpisodeProcedure:      true,
	pb.ServiceServiceWatchEpisodeProcedure:    true,
	pb.ServiceServiceHealProcedure:            false,
	pb.ServiceServiceCancelHealProcedure:      false,
	pb.ServiceServiceRollBackEpisodeProcedure: false,
	pb.ServiceServiceAdoptProcedure:           false,

	pb.ChatServiceSendProcedure:   false,
	pb.ChatServiceFollowProcedure: true,
	pb.ChatServiceAnswerProcedure: false,
	pb.ChatServiceStopProcedure:   false,
	pb.ChatServiceListProcedure:   true,
	pb.ChatServiceClearProcedure:  false,

	pb.CodeServiceListContextsProcedure:   true,
	pb.CodeServiceCreateContextProcedure:  false,
	pb.CodeServiceRestartContextProcedure: false,
	pb.CodeServiceRemoveContextProcedure:  false,
	pb.CodeServiceRunCellProcedure:        false,
	pb.CodeServiceCancelCellProcedure:     false,
	pb.CodeServiceFollowContextProcedure:  true,

	pb.KeyServiceCreateProcedure: false,
	pb.KeyServiceListProcedure:   true,
	pb.KeyServiceRevokeProcedure: false,

	pb.OverviewServiceWatchProcedure: true,
	pb.OverviewServiceUsageProcedure: true,
}

func onlyReads(path string) bool { return reads[path] }

// withholding keeps from a reader the values of environments, and of labels that may hold a
// secret: they may give more rights than it has. What a process prints and its command are
// shown.
type withholding struct{}

func (withholding) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if err == nil && module.OnlyReads(ctx) {
			withhold(resp.Any())
		}
		return resp, loginOver(ctx, err)
	}
}

func (withholding) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (withholding) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if module.OnlyReads(ctx) {
			conn = readersConn{conn}
		}
		return loginOver(ctx, next(ctx, conn))
	}
}

// loginOver says of an error that the login has ended, where it is for that.
func loginOver(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), module.ErrLoginOver) {
		return connect.NewError(connect.CodeUnauthenticated, module.ErrLoginOver)
	}
	return err
}

// readersConn is the stream of a reader.
type readersConn struct{ connect.StreamingHandlerConn }

func (c readersConn) Send(m any) error {
	if o, ok := m.(*tendv1.WatchOverviewResponse); ok {
		m = proto.CloneOf(o) // all viewers share what is in it
	}
	withhold(m)
	return c.StreamingHandlerConn.Send(m)
}

func withhold(m any) {
	if m, ok := m.(proto.Message); ok {
		withholdIn(m.ProtoReflect())
	}
}

// withholdIn takes the values out of each environment in a message: of a Spec, and of
// what sandboxes and templates give to their processes; and out of labels that may hold a
// secret. Maps that others may hold are replaced, not changed.
func withholdIn(m protoreflect.Message) {
	switch s := m.Interface().(type) {
	case *tendv1.Spec:
		raw := make([]*tendv1.Spec_RawVariable, len(s.RawEnv))
		for n, v := range s.RawEnv {
			raw[n] = &tendv1.Spec_RawVariable{Name: v.Name}
		}
		s.Env, s.RawEnv, s.Labels = namesAlone(s.Env), raw, withoutURL(s.Labels)
		return
	case *tendv1.OverviewProcess:
		s.Labels = withoutURL(s.Labels)
		return
	case *tendv1.SandboxRun:
		s.Env = namesAlone(s.Env)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for n := range v.List().Len() {
				withholdIn(v.List().Get(n).Message())
			}
		default:
			withholdIn(v.Message())
		}
		return true
	})
}

// withoutURL are labels without the URL that is told of the process's end: who has it may
// send messages there.
func withoutURL(labels map[string]string) map[string]string {
	if labels[onexit.LabelURL] == "" {
		return labels
	}
	labels = maps.Clone(labels)
	labels[onexit.LabelURL] = ""
	return labels
}

// namesAlone is an environment without its values.
func namesAlone(env map[string]string) map[string]string {
	names := make(map[string]string, len(env))
	for name := range env {
		names[name] = ""
	}
	return names
}
