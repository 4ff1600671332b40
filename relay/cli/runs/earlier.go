package runs

import (
	"crypto/sha256"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/transfer"
	"colabrelay/shared/bounded"
)

const (
	maxEarlierFiles = 1000     // that are looked for on this computer
	maxEarlierBytes = 16 << 20 // of their contents, and that of the program
	maxEarlierNamed = 5        // in the note
)

// noteEarlier says which modules that the program imports changed since they were put on the VM.
// What the run brings along is on the VM as it is now.
func (o *runOptions) noteEarlier(vm *client.Client, along companions) {
	if along.file == "" {
		return
	}
	found := earlierFiles(along.file, transfer.Uploaded(along.options.RecordDir, vm.InstanceID(), filepath.Dir(along.file)))
	found = slices.DeleteFunc(found, func(f transfer.UploadedFile) bool { return along.has(f.Local) })
	if len(found) > 0 {
		fmt.Fprintf(o.Std.Err, "note: %s\n", plain.Line(o.earlierNote(found)))
	}
}

func (o *runOptions) earlierNote(found []transfer.UploadedFile) string {
	named := found[:min(len(found), maxEarlierNamed)]
	var locals []string
	for _, f := range named {
		locals = append(locals, f.Local)
	}
	names := strings.Join(locals, ", ")
	if rest := len(found) - len(named); rest > 0 {
		names += fmt.Sprintf(" and %d more", rest)
	}
	next := "add `" + withWords(locals...) + "` to this command"
	folder := path.Dir(named[0].Remote)
	if !slices.ContainsFunc(named, func(f transfer.UploadedFile) bool { return path.Dir(f.Remote) != folder }) {
		next = "run `" + o.put(append([]string{"--to", plain.Name(folder)}, locals...)...) + "`, or " + next
	}
	return fmt.Sprintf("the VM has an earlier version of %s: %s", names, next)
}

// earlierFiles returns the modules of those uploaded that a program imports and whose content is not
// what was uploaded last.
func earlierFiles(program string, uploaded []transfer.UploadedFile) []transfer.UploadedFile {
	program = filepath.Clean(program)
	room := int64(maxEarlierBytes)
	texts := map[string]string{}
	read := func(local string) bool {
		text, err := bounded.ReadFile(local, room)
		texts[local] = string(text)
		room -= int64(len(text))
		return err == nil
	}
	read(program)
	var found []transfer.UploadedFile
	for _, f := range slices.Backward(uploaded) {
		if _, seen := texts[f.Local]; seen || filepath.Ext(f.Local) != ".py" || len(texts) > maxEarlierFiles {
			continue
		}
		if read(f.Local) && fmt.Sprintf("%x", sha256.Sum256([]byte(texts[f.Local]))) != f.SHA256 {
			found = append(found, f)
		}
	}
	imported := importedBy(program, texts)
	return slices.DeleteFunc(found, func(f transfer.UploadedFile) bool { return !imported[f.Local] })
}

// importedBy returns the files that a program imports, or what it imports, as far as words can
// tell: the name of a module, or of a package around it, stands in a line with an import.
func importedBy(program string, texts map[string]string) map[string]bool {
	byName := map[string][]string{} // places
	for place := range texts {
		below, _ := filepath.Rel(filepath.Dir(program), place)
		for part := range strings.SplitSeq(filepath.ToSlash(strings.TrimSuffix(below, ".py")), "/") {
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
