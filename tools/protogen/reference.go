package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// reference writes a page of Markdown: each call with its messages, as the comments of the .proto
// files describe them.
func reference(files linker.Files, out string) error {
	var b strings.Builder
	b.WriteString("# tend's own API\n\nConnect, gRPC and gRPC-Web at the daemon's port and socket; with Connect a call is `POST /SERVICE/CALL` with JSON:\n\n" +
		"```\ncurl --unix-socket ~/.local/state/tend/tend.sock http://tend/tend.v1.ProcessService/List -H 'Content-Type: application/json' -d '{}'\n```\n\n" +
		"In JSON the names of fields are in camelCase, as `exitCode`. `make gen` writes this page from the files in `proto`.\n\n")
	for _, file := range files {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			fmt.Fprintf(&b, "- [%s](#%s)", s.Name(), strings.ToLower(string(s.Name())))
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				fmt.Fprintf(&b, " [%s](#%s)", m.Name(), strings.ToLower(string(s.Name())+string(m.Name())))
			}
			b.WriteString("\n")
		}
	}
	for _, file := range files {
		for i := range file.Services().Len() {
			service(&b, file.Services().Get(i))
		}
	}
	b.WriteString("\n# Messages\n")
	for _, file := range files {
		for i := range file.Messages().Len() {
			message(&b, file.Messages().Get(i))
		}
		for i := range file.Enums().Len() {
			enum(&b, file.Enums().Get(i))
		}
	}
	if err := os.MkdirAll(path.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

func service(b *strings.Builder, s protoreflect.ServiceDescriptor) {
	fmt.Fprintf(b, "\n## %s\n\n`/%s`\n\n", s.Name(), s.FullName())
	if text := comment(s); text != "" {
		b.WriteString(text + "\n\n")
	}
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		stream := func(yes bool) string {
			if yes {
				return "stream of "
			}
			return ""
		}
		fmt.Fprintf(b, "### %s.%s\n\n", s.Name(), m.Name())
		if text := comment(m); text != "" {
			b.WriteString(text + "\n\n")
		}
		fmt.Fprintf(b, "%s%s → %s%s\n\n", stream(m.IsStreamingClient()), link(m.Input()), stream(m.IsStreamingServer()), link(m.Output()))
	}
}

// title is the name of a message or an enumeration, without its package.
func title(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

func link(d protoreflect.Descriptor) string {
	if !strings.HasPrefix(string(d.FullName()), "tend.") {
		return "`" + string(d.FullName()) + "`"
	}
	name := title(d)
	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(strings.ReplaceAll(name, ".", "")))
}

func message(b *strings.Builder, m protoreflect.MessageDescriptor) {
	if m.IsMapEntry() {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title(m))
	if text := comment(m); text != "" {
		b.WriteString(text + "\n\n")
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if i == 0 {
			b.WriteString("| field | type | meaning |\n|---|---|---|\n")
		}
		kind := kindOf(f)
		switch one := f.ContainingOneof(); {
		case f.IsMap():
			kind = fmt.Sprintf("map of %s", kindOf(f.MapValue()))
		case f.IsList():
			kind = "list of " + kind
		case one != nil && !one.IsSynthetic():
			kind += fmt.Sprintf(", one of `%s`", one.Name())
		case f.HasOptionalKeyword():
			kind += ", optional"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Name(), kind, comment(f))
	}
	if m.Fields().Len() == 0 {
		b.WriteString("It has no fields.\n")
	}
	for i := range m.Messages().Len() {
		message(b, m.Messages().Get(i))
	}
	for i := range m.Enums().Len() {
		enum(b, m.Enums().Get(i))
	}
}

func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return link(f.Message())
	case f.Enum() != nil:
		return link(f.Enum())
	}
	return f.Kind().String()
}

func enum(b *strings.Builder, e protoreflect.EnumDescriptor) {
	fmt.Fprintf(b, "\n## %s\n\n", title(e))
	if text := comment(e); text != "" {
		b.WriteString(text + "\n\n")
	}
	b.WriteString("| value | meaning |\n|---|---|\n")
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		fmt.Fprintf(b, "| `%s` | %s |\n", v.Name(), comment(v))
	}
}

// comment is what stands before something, or behind it in its line; its lines are joined.
func comment(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := strings.TrimSpace(at.LeadingComments + "\n" + at.TrailingComments)
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.NewReplacer("|", `\|`, "<", `\<`).Replace(strings.Join(lines, " "))
}
