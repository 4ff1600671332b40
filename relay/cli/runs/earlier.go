package runs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
)

const (
	maxEarlierFiles = 1000     // that are looked for on this computer
	maxEarlierDepth = 16       // of folders
	maxEarlierBytes = 16 << 20 // of their contents, and that of the program
	maxEarlierNamed = 5        // in the note
)

// earlierFile is a module that changed on this computer after it was put on the VM.
type earlierFile struct {
	local  string
	remote string // absolute and escaped
}

// noteEarlier says which modules that the program imports changed since they were put on the VM.
// What the run brings along is on the VM as it is now.
func (o *runOptions) noteEarlier(ctx context.Context, vm *client.Client, along companions) {
	if along.file == "" {
		return
	}
	found := earlierFiles(along.file, transfer.Uploaded(along.options.RecordDir, vm.InstanceID(), filepath.Dir(along.file)))
	found = slices.DeleteFunc(found, func(f earlierFile) bool { return along.has(f.local) })
	if len(found) > 0 {
		fmt.Fprintf(o.Std.Err, "note: %s\n", plain.Line(o.earlierNote(found, folderOnVM(ctx, vm, contentDir))))
	}
}

// earlierNote is the note; home is where put puts files by itself.
func (o *runOptions) earlierNote(found []earlierFile, home string) string {
	named := found[:min(len(found), maxEarlierNamed)]
	var locals []string
	for _, f := range named {
		locals = append(locals, f.local)
	}
	names := strings.Join(locals, ", ")
	if rest := len(found) - len(named); rest > 0 {
		names += fmt.Sprintf(" and %d more", rest)
	}
	changed := "changed here since it was put on the VM, which has the earlier one"
	if len(found) > 1 {
		changed = "changed here since they were put on the VM, which has the earlier ones"
	}
	next := "`" + o.again(locals...) + "`"
	folder := path.Dir(named[0].remote)
	if !slices.ContainsFunc(named, func(f earlierFile) bool { return path.Dir(f.remote) != folder }) {
		next = "`" + o.putAt(home, folder, locals) + "`, or " + next
	}
	return fmt.Sprintf("%s %s: %s", names, changed, next)
}

// earlierFiles returns the modules beside and below a program that it imports and whose content
// is not what was uploaded last, as uploaded has it by the paths on the VM. A file belongs to the
// shortest path there that ends like its own. Nothing else in the folders is looked at.
func earlierFiles(program string, uploaded map[string]string) []earlierFile {
	folder := filepath.Dir(program)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil
	}
	defer root.Close()
	remotes := slices.DeleteFunc(slices.Collect(maps.Keys(uploaded)), func(remote string) bool { return path.Ext(remote) != ".py" })
	slices.SortFunc(remotes, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	})
	room := int64(maxEarlierBytes)
	source, _ := readWithin(root, filepath.Base(program), &room)
	texts := map[string]string{filepath.Base(program): source}
	var found []earlierFile
	for _, remote := range remotes[:min(len(remotes), maxEarlierFiles)] {
		place, ok := localPlace(root, remote)
		if _, seen := texts[place]; !ok || seen {
			continue
		}
		text, ok := readWithin(root, place, &room)
		texts[place] = text
		if ok && fmt.Sprintf("%x", sha256.Sum256([]byte(text))) != uploaded[remote] {
			found = append(found, earlierFile{filepath.Join(folder, place), remote})
		}
	}
	imported := importedBy(filepath.Base(program), texts)
	return slices.DeleteFunc(found, func(f earlierFile) bool {
		place, err := filepath.Rel(folder, f.local)
		return err != nil || !imported[place]
	})
}

// importedBy returns the files that a program imports, or what it imports, as far as words can
// tell: the name of a module, or of a package around it, stands in a line with an import.
func importedBy(program string, texts map[string]string) map[string]bool {
	byName := map[string][]string{} // places
	for place := range texts {
		for part := range strings.SplitSeq(filepath.ToSlash(strings.TrimSuffix(place, ".py")), "/") {
			byName[part] = append(byName[part], place)
		}
	}
	imported := map[string]bool{program: true}
	for todo := []string{program}; len(todo) > 0; {
		text := texts[todo[0]]
		todo = todo[1:]
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			if !strings.Contains(line, "import") {
				continue
			}
			for word := range strings.FieldsFuncSeq(line, isNoNameRune) {
				for _, place := range byName[word] {
					if !imported[place] {
						imported[place], todo = true, append(todo, place)
					}
				}
				delete(byName, word)
			}
		}
	}
	return imported
}

// isNoNameRune reports whether a character cannot stand in the name of a module.
func isNoNameRune(r rune) bool { return r != '_' && !unicode.In(r, unicode.L, unicode.N, unicode.M) }

// localPlace returns the longest end of a path on the VM that is a file below root.
func localPlace(root *os.Root, remote string) (place string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(contract.UnescapeName(remote), "/"), "/")
	for i := max(0, len(parts)-maxEarlierDepth); i < len(parts); i++ {
		place := filepath.FromSlash(strings.Join(parts[i:], "/"))
		if !filepath.IsLocal(place) {
			continue
		}
		if info, err := root.Stat(place); err == nil && info.Mode().IsRegular() {
			return place, !isForeign(root, parts[i:len(parts)-1])
		}
	}
	return "", false
}

// isForeign reports whether one of the folders on the way to a file is hidden or has installed
// packages.
func isForeign(root *os.Root, folders []string) bool {
	for i, folder := range folders {
		if strings.HasPrefix(folder, ".") || folder == "site-packages" {
			return true
		}
		if _, err := root.Stat(filepath.Join(append(slices.Clone(folders[:i+1]), "pyvenv.cfg")...)); err == nil {
			return true
		}
	}
	return false
}

// readWithin returns the content of a file, if it can be read within the room.
func readWithin(root *os.Root, place string, room *int64) (content string, ok bool) {
	f, err := root.Open(place)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > *room {
		return "", false
	}
	b, err := io.ReadAll(io.LimitReader(f, *room+1))
	if *room -= int64(len(b)); err != nil || *room < 0 {
		return "", false
	}
	return string(b), true
}
