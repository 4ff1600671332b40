package hostilevm

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// fileCases lie about files, folders and uploads.
var fileCases = []Case{
	statCase("file-negative", "reports files of a negative size", func(st *contract.FileStat) { st.SizeBytes = -1 }),
	statCase("file-largest", "reports files of the largest size", func(st *contract.FileStat) { st.SizeBytes = math.MaxInt64 }),
	statCase("file-longer", "sends parts that are longer than the file", func(st *contract.FileStat) { st.SizeBytes = 3 }),
	statCase("file-shorter", "sends parts that are shorter than asked for", func(st *contract.FileStat) { st.SizeBytes = 100 << 20 }),
	statCase("file-digest", "reports a digest that no file has", func(st *contract.FileStat) { st.SHA256 = strings.Repeat("0", 64) }),
	statCase("file-hashing", "computes digests without end, and goes backwards", func(st *contract.FileStat) {
		st.SHA256, st.Hashing = "", &contract.Hashing{HashedBytes: -5, TotalBytes: math.MaxInt64}
	}),
	statCase("file-etag", "reports a different etag for each request", func(st *contract.FileStat) { st.ETag = fmt.Sprint(changes.Add(1)) + Escape }),
	folderCase("folder-endless", "lists a folder without end", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: fmt.Sprintf("%s%04d", after[:min(len(after), 200)], i), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
	folderCase("folder-same", "lists the same page of a folder without end", func(string) []contract.File {
		return []contract.File{{Name: "a", SizeBytes: 1, Modified: at}}
	}, true),
	folderCase("folder-long", "lists a folder without end, with names of 4,096 bytes", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: strings.Repeat("n", 4096-16) + fmt.Sprintf("%016x", changes.Add(1)), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
	folderCase("folder-deep", "lists a folder in each folder", func(string) []contract.File {
		return []contract.File{{Name: "d", IsDir: true, Modified: at}}
	}, false),
	folderCase("folder-sizes", "lists files whose sizes exceed the largest number together", func(string) []contract.File {
		all := make([]contract.File, 900)
		for i := range all {
			all[i] = contract.File{Name: fmt.Sprint(i), SizeBytes: math.MaxInt64 / 2, Modified: at}
		}
		return all
	}, false),
	{Name: "contents", About: "answers a batch read with an index that fits neither the request nor the bytes", routes: func(*fakevm.VM) routes {
		return with(folderRoutes(func(string) []contract.File {
			return []contract.File{{Name: "a", SizeBytes: 5, Modified: at}, {Name: "b", SizeBytes: 5, Modified: at}}
		}, false), routes{"POST " + contract.PathContents: func(question) fakevm.Reply {
			body, err := contract.AppendIndex([]byte(evil), contract.Contents{Files: []contract.Content{{SizeBytes: math.MaxInt64, Modified: at}, {SizeBytes: -7}, {SizeBytes: 1}}})
			if err != nil {
				panic(err) // structs of the contract
			}
			return fakevm.Reply{Body: body}
		}})
	}},
	uploadCase("upload-missing", "asks for bytes of an upload that it does not have", contract.Upload{
		UploadID: "u", Status: contract.UploadReceiving, SizeBytes: 1,
		Missing: []contract.Range{{Offset: math.MaxInt64 - 1, Length: math.MaxInt64}, {Offset: -5, Length: 10}, {Offset: 0, Length: -1}},
	}),
	uploadCase("upload-again", "asks for the same bytes of an upload without end", contract.Upload{
		UploadID: "u", Status: contract.UploadReceiving, SizeBytes: 4, Missing: []contract.Range{{Offset: 0, Length: 4}},
	}),
	uploadCase("upload-hashing", "verifies an upload without end", contract.Upload{
		UploadID: "u", Status: contract.UploadHashing, SizeBytes: 4, ReceivedBytes: 4, Hashing: &contract.Hashing{HashedBytes: math.MaxInt64, TotalBytes: -1},
	}),
	uploadCase("upload-elsewhere", "places an upload at another path, with another digest", contract.Upload{
		UploadID: "../x?" + Escape, Status: contract.UploadCommitted, Path: "/root/.bashrc" + Escape, SizeBytes: -1, SHA256: strings.Repeat("0", 64),
	}),
}

// changes counts the answers of file-etag.
var changes atomic.Int64

// statCase changes what is said of every file. Its content is short.
func statCase(name, about string, change func(*contract.FileStat)) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		return routes{
			"GET " + contract.PathStat: func(q question) fakevm.Reply {
				st := fileStat(q.URL.Query().Get("path"), []byte(evil))
				change(&st)
				return fakevm.Reply{Body: st}
			},
			"GET " + contract.PathContent: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
		}
	}}
}

// folderCase reports every path as a folder, which has these entries after a name.
func folderCase(name, about string, entries func(after string) []contract.File, endless bool) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes { return folderRoutes(entries, endless) }}
}

func folderRoutes(entries func(after string) []contract.File, endless bool) routes {
	return routes{
		"GET " + contract.PathStat: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			return fakevm.Reply{Body: contract.FileStat{File: contract.File{Name: base(path), Path: path, IsDir: true, Modified: at}}}
		},
		"GET " + contract.PathFiles: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			got := contract.Files{Path: path, Files: entries(q.URL.Query().Get("after")), Truncated: endless}
			for i := range got.Files {
				got.Files[i].Path = path + "/" + got.Files[i].Name
			}
			got.FileCount = len(got.Files)
			return fakevm.Reply{Body: got}
		},
		"POST " + contract.PathContents: evilContents,
	}
}

// uploadCase answers every request about an upload with the same.
func uploadCase(name, about string, u contract.Upload) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		answer := just(u)
		return routes{"POST " + contract.PathUploads: answer, "GET " + contract.PathUpload: answer, "PUT " + contract.PathUpload: answer, "POST " + contract.PathUploadCommit: answer}
	}}
}

// with returns all routes of both; those of more count.
func with(some, more routes) routes {
	for route, answer := range more {
		some[route] = answer
	}
	return some
}
