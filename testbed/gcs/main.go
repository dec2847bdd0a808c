// A server of Google Cloud Storage: fake-gcs-server, and what it lacks of the XML API, which is uploads in parts.
//
// It listens on the given address, whose port may be 0, and prints the address that it has then.
package main

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const leastPart = 5 << 20

type part struct {
	data []byte
	etag string
}

type upload struct {
	XMLName xml.Name `xml:"Upload"`
	Key     string
	ID      string `xml:"UploadId"`
	bucket  string
	parts   map[int]part
}

type uploads struct {
	server *fakestorage.Server
	lock   sync.Mutex
	number int
	open   map[string]*upload
}

func answer(w http.ResponseWriter, status int, document any) {
	w.WriteHeader(status)
	xml.NewEncoder(w).Encode(document)
}

func refuse(w http.ResponseWriter, status int, code string) {
	type Error struct{ Code, Message string }
	answer(w, status, Error{code, "the server of the tests says so"})
}

func (u *uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	id, bucketAndKey := query.Get("uploadId"), strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 2)
	if id == "" && !query.Has("uploads") {
		if r.Method == http.MethodGet {
			r.Host = "storage.googleapis.com" // it knows reads by the XML API under this name alone
		}
		u.server.HTTPHandler().ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	u.lock.Lock()
	defer u.lock.Unlock()
	if query.Has("uploads") {
		u.start(w, r, bucketAndKey, query.Get("prefix"))
	} else if found := u.open[id]; found == nil {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	} else if r.Method == http.MethodDelete {
		delete(u.open, id)
		w.WriteHeader(http.StatusNoContent)
	} else if r.Method == http.MethodPut {
		number, _ := strconv.Atoi(query.Get("partNumber"))
		found.put(w, number, body, r.Header.Get("x-goog-hash"))
	} else {
		u.complete(w, found, body)
	}
}

func (u *uploads) start(w http.ResponseWriter, r *http.Request, bucketAndKey []string, prefix string) {
	type ListMultipartUploadsResult struct{ Uploads []*upload }
	type InitiateMultipartUploadResult struct{ UploadId string }
	if _, err := u.server.Backend().GetBucket(bucketAndKey[0]); err != nil {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if r.Method == http.MethodGet {
		listed := ListMultipartUploadsResult{}
		for _, one := range u.open {
			if one.bucket == bucketAndKey[0] && strings.HasPrefix(one.Key, prefix) {
				listed.Uploads = append(listed.Uploads, one)
			}
		}
		answer(w, http.StatusOK, listed)
		return
	}
	u.number++
	id := strconv.Itoa(u.number)
	u.open[id] = &upload{Key: bucketAndKey[1], ID: id, bucket: bucketAndKey[0], parts: map[int]part{}}
	answer(w, http.StatusOK, InitiateMultipartUploadResult{id})
}

func (u *upload) put(w http.ResponseWriter, number int, body []byte, announced string) {
	sum := make([]byte, 4)
	binary.BigEndian.PutUint32(sum, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	if announced != "" && announced != "crc32c="+base64.StdEncoding.EncodeToString(sum) {
		refuse(w, http.StatusBadRequest, "BadDigest")
		return
	}
	digest := md5.Sum(body)
	u.parts[number] = part{body, `"` + hex.EncodeToString(digest[:]) + `"`}
	w.Header().Set("ETag", u.parts[number].etag)
}

func (u *uploads) complete(w http.ResponseWriter, one *upload, body []byte) {
	var named struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if xml.Unmarshal(body, &named) != nil {
		refuse(w, http.StatusBadRequest, "MalformedCompleteMultipartUploadRequest")
		return
	}
	var whole []byte
	for at, each := range named.Part {
		found := one.parts[each.PartNumber]
		if each.ETag != found.etag || (at > 0 && each.PartNumber <= named.Part[at-1].PartNumber) {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		if at < len(named.Part)-1 && len(found.data) < leastPart {
			refuse(w, http.StatusBadRequest, "EntityTooSmall")
			return
		}
		whole = append(whole, found.data...)
	}
	u.server.CreateObject(fakestorage.Object{
		ObjectAttrs: fakestorage.ObjectAttrs{BucketName: one.bucket, Name: one.Key}, Content: whole,
	})
	delete(u.open, one.ID)
	type CompleteMultipartUploadResult struct{ Key string }
	answer(w, http.StatusOK, CompleteMultipartUploadResult{one.Key})
}

func main() {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, &uploads{server: server, open: map[string]*upload{}}))
}
