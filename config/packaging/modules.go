package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// thirdParty returns the licences of Go and of all modules that are linked into the
// programs. Most of them ask that copies of the program come with their text.
func thirdParty(programs []built) ([]byte, error) {
	var modules []string
	for _, program := range programs {
		for _, module := range program.info.Deps {
			modules = append(modules, module.Path)
		}
	}
	slices.Sort(modules)
	folders, err := sources(slices.Compact(modules))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.WriteString("\nThe programs contain the following software under its own terms.\n")
	for _, module := range folders {
		if err := writeLicence(&text, module[0], module[1]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// sources returns the name and folder of Go and of each module.
func sources(modules []string) ([][2]string, error) {
	root, err := goTool("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := [][2]string{{"Go and its standard library", root}}
	list, err := goTool(append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders = append(folders, [2]string{name, folder})
	}
	return folders, nil
}

func goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

var licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|copyright)([.-].*)?$`)

// writeLicence writes the licence files in a folder. A module without one fails the
// release: nothing permits to copy it.
func writeLicence(text *bytes.Buffer, name, folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the licence of %q: %w", name, err)
	}
	found := false
	for _, file := range files {
		if file.IsDir() || !licenceFile.MatchString(file.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return fmt.Errorf("the licence of %q: %w", name, err)
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("-", 80), name, file.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("the licence of %q: its source has none", name)
	}
	return nil
}

// billOfMaterials lists the modules that are linked into the programs, and the programs
// with their digests (CycloneDX 1.6, JSON). Go writes the modules into each program. There
// is no serial number and no time, so that equal programs give an equal list.
func billOfMaterials(r *release) ([]artifact, error) {
	modules := map[string]cdx.Component{}
	var programs []cdx.Component
	var dependencies []cdx.Dependency
	for _, program := range r.built {
		refs := addModules(modules, program.info)
		programs = append(programs, cdx.Component{
			BOMRef: program.name, Type: cdx.ComponentTypeApplication, Name: program.name, Version: r.version,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: program.sha256()}},
		})
		dependencies = append(dependencies, cdx.Dependency{Ref: program.name, Dependencies: &refs})
	}
	components := slices.SortedFunc(maps.Values(modules), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	components = append(programs, components...)
	bom := cdx.BOM{
		JSONSchema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: cdx.BOMFormat, SpecVersion: cdx.SpecVersion1_6, Version: 1,
		Metadata:   &cdx.Metadata{Component: &cdx.Component{BOMRef: command, Type: cdx.ComponentTypeApplication, Name: command, Version: r.version}},
		Components: &components, Dependencies: &dependencies,
	}
	var file bytes.Buffer
	err := cdx.NewBOMEncoder(&file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(&bom)
	return []artifact{{command + "_" + r.number + ".cdx.json", file.Bytes()}}, err
}

// addModules adds the modules of a program, and Go's standard library, and returns their
// references.
func addModules(modules map[string]cdx.Component, info *buildinfo.BuildInfo) (refs []string) {
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + version
		refs = append(refs, url)
		modules[url] = cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		add(module.Path, module.Version)
	}
	slices.Sort(refs)
	return refs
}
