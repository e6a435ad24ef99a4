// The to-do API on Go's standard library, with the product's response headers and checks. Each to-do is encoded once, when
// it is written, as in the product.
package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

const maxBody = 64 << 10

var (
	loopbackHost   = regexp.MustCompile(`(?i)^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$`)
	loopbackOrigin = regexp.MustCompile(`^https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$`)

	// A handler that assigns a slice allocates none.
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	textType    = []string{"text/plain; charset=utf-8"}
	noStore     = []string{"no-store"}
	noCache     = []string{"no-cache"}
	exposed     = []string{"ETag, Link, Location, Retry-After, Todo-Position, X-Request-Id"}
	security    = http.Header{
		"X-Content-Type-Options":       {"nosniff"},
		"Content-Security-Policy":      {"frame-ancestors 'none'"},
		"Cross-Origin-Resource-Policy": {"same-origin"},
		"Vary":                         {"Origin"},
	}
)

type todo struct {
	ID    uint64 `json:"id"`
	Title string `json:"title"`
	Done  bool   `json:"done"`
}

// store is a map of encoded to-dos, their ids in ascending order, and the encoded list until the next change.
type store struct {
	mutex   sync.RWMutex
	encoded map[uint64][]byte
	ids     []uint64
	list    []byte
}

func (s *store) get(id uint64) []byte {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.encoded[id]
}

func (s *store) insert(title string) (uint64, []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	id := uint64(len(s.ids) + 1)
	text, err := json.Marshal(todo{ID: id, Title: title})
	if err != nil {
		panic(err)
	}
	s.encoded[id] = text
	s.ids = append(s.ids, id)
	s.list = nil
	return id, text
}

// all returns the encoded list and the number of changes.
func (s *store) all() ([]byte, int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.list == nil {
		s.list = []byte{'['}
		for index, id := range s.ids {
			if index > 0 {
				s.list = append(s.list, ',')
			}
			s.list = append(s.list, s.encoded[id]...)
		}
		s.list = append(s.list, ']')
	}
	return s.list, len(s.ids)
}

// server is the API. Clients are found by the SHA-256 of their token.
type server struct {
	todos   store
	clients map[[sha256.Size]byte]client
}

type client struct {
	name string
	hash [sha256.Size]byte
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, values := range security {
		header[name] = values
	}
	origin := r.Header.Get("Origin")
	isOwn := origin != "" && loopbackOrigin.MatchString(origin)
	if isOwn {
		header["Access-Control-Allow-Origin"] = []string{origin}
		header["Access-Control-Expose-Headers"] = exposed
	}
	if !loopbackHost.MatchString(r.Host) {
		reject(w, http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet && !isOwn && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		reject(w, http.StatusForbidden)
		return
	}
	switch path := r.URL.Path; {
	case path == "/api/todos" && r.Method == http.MethodGet:
		s.getList(w, r)
	case path == "/api/todos" && r.Method == http.MethodPost:
		s.create(w, r)
	case path == "/api/whoami":
		s.whoami(w, r)
	case strings.HasPrefix(path, "/api/todos/") && r.Method == http.MethodGet:
		s.getOne(w, strings.TrimPrefix(path, "/api/todos/"))
	default:
		reject(w, http.StatusNotFound)
	}
}

func (s *server) getList(w http.ResponseWriter, r *http.Request) {
	list, changes := s.todos.all()
	position := strconv.Itoa(changes)
	header := w.Header()
	header["Etag"] = []string{`"` + position + `"`}
	header["Todo-Position"] = []string{position}
	header["Cache-Control"] = noCache
	if r.Header.Get("If-None-Match") == `"`+position+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, http.StatusOK, jsonType, list)
}

func (s *server) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		reject(w, http.StatusRequestEntityTooLarge)
		return
	}
	var input struct {
		Title *string `json:"title"`
	}
	if !utf8.Valid(body) || json.Unmarshal(body, &input) != nil {
		reject(w, http.StatusBadRequest)
		return
	}
	if input.Title == nil || strings.TrimSpace(*input.Title) == "" || utf8.RuneCountInString(*input.Title) > 120 {
		reject(w, http.StatusUnprocessableEntity)
		return
	}
	id, text := s.todos.insert(*input.Title)
	header := w.Header()
	header["Location"] = []string{"todos/" + strconv.FormatUint(id, 10)}
	header["Todo-Position"] = []string{strconv.FormatUint(id, 10)}
	send(w, http.StatusCreated, jsonType, text)
}

func (s *server) getOne(w http.ResponseWriter, text string) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		reject(w, http.StatusBadRequest)
		return
	}
	if found := s.todos.get(id); found != nil {
		send(w, http.StatusOK, jsonType, found)
		return
	}
	reject(w, http.StatusNotFound)
}

func (s *server) whoami(w http.ResponseWriter, r *http.Request) {
	w.Header()["Cache-Control"] = noStore
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(token))
	found, isKnown := s.clients[hash]
	if !strings.EqualFold(scheme, "Bearer") || !isKnown || subtle.ConstantTimeCompare(found.hash[:], hash[:]) != 1 {
		w.Header().Set("Www-Authenticate", "Bearer")
		reject(w, http.StatusUnauthorized)
		return
	}
	send(w, http.StatusOK, textType, []byte(found.name))
}

func send(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

func reject(w http.ResponseWriter, status int) {
	body, err := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status})
	if err != nil {
		panic(err)
	}
	send(w, status, problemType, body)
}

func main() {
	api := &server{
		todos:   store{encoded: map[uint64][]byte{}},
		clients: map[[sha256.Size]byte]client{},
	}
	var hash [sha256.Size]byte
	if _, err := hex.Decode(hash[:], []byte(os.Getenv("CLIENT_SHA256"))); err != nil {
		log.Fatal(err)
	}
	api.clients[hash] = client{name: "bench", hash: hash}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), api))
}
