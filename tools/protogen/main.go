// Command protogen compiles the .proto files of a directory and writes the Go
// code of the pinned plugins. It stands in for protoc and buf, so that
// generating needs nothing but Go:
//
//	go -C tools run ./protogen -I ../proto -out ../gen
//
// With -plugin it runs another plugin instead, with the options of -options,
// and with -only for some of the files alone:
//
//	go -C tools run ./protogen -I ../proto -out DIR -plugin PATH/protoc-gen-es -options target=ts -only tend/
//
// With -reference it writes a page that describes the calls, and no code.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins generates the Go code.
var plugins = [][]string{{"go", "tool", "protoc-gen-go"}, {"go", "tool", "protoc-gen-connect-go"}}

func main() {
	include := flag.String("I", "proto", "directory of the .proto files")
	out := flag.String("out", "gen", "directory to write to")
	plugin := flag.String("plugin", "", "program to run instead of the Go plugins")
	// The import path of a generated Go file, less the module, is its place under -out.
	options := flag.String("options", "module=github.com/tend-run/tend/gen", "parameter of the plugins")
	only := flag.String("only", "", "beginning of the names of the files to generate from")
	// No code, but a page that describes the calls.
	page := flag.String("reference", "", "file to write a reference to, in place of code")
	flag.Parse()
	run := plugins
	if *plugin != "" {
		run = [][]string{{*plugin}}
	}
	if err := generateAll(*include, *out, run, *options, *only, *page); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func generateAll(include, out string, plugins [][]string, options, only, page string) error {
	names, err := protoFiles(include)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, only) })
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{include}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	if page != "" {
		return reference(files, page)
	}
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String(options),
		ProtoFile:      closure(files),
	}
	body, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := generate(plugin, body, out); err != nil {
			return fmt.Errorf("%s: %w", plugin[len(plugin)-1], err)
		}
	}
	return nil
}

func protoFiles(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".proto") {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	sort.Strings(names)
	return names, err
}

// closure lists the files and all their imports, imports first, as the plugin
// protocol demands.
func closure(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var visit func(fd protoreflect.FileDescriptor)
	visit = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			visit(fd.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(fd))
	}
	for _, f := range files {
		visit(f)
	}
	return all
}

func generate(plugin []string, request []byte, out string) error {
	cmd := exec.Command(plugin[0], plugin[1:]...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return fmt.Errorf("%s", resp.GetError())
	}
	for _, f := range resp.File {
		path := filepath.Join(out, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
