"""Word lists shared by the data families."""

NAMES = """Anna Ben Carla David Elena Felix Grace Hugo Irene Jack Kate Leo Maria Nina Oscar Paul Quinn Rosa Sam Tina
Uma Victor Wendy Xavier Yara Zoe Omar Lin Mei Ravi Sofia Ivan Emma Noah Liam Olivia Ava Mia Lucas Ethan""".split()
CHINESE_NAMES = "小明 小红 小华 李雷 王芳 张伟 刘洋 陈静 赵强 周敏".split()
CITIES = """Paris London Berlin Madrid Rome Vienna Oslo Tokyo Beijing Shanghai Cairo Lima Boston Chicago Sydney Delhi
Seoul Moscow Athens Dublin Prague Warsaw Lisbon Toronto Nairobi Hanoi""".split()
JOBS = "nurse teacher pilot baker farmer painter doctor lawyer driver cook writer singer engineer gardener tailor".split()
ANIMALS = """cat dog horse cow sheep goat duck frog fish bird mouse lion tiger bear wolf fox rabbit snake whale ant""".split()
FRUITS = "apple pear plum grape lemon mango peach melon cherry banana orange kiwi fig lime".split()
COLORS = "red green blue yellow black white orange purple pink brown gray".split()
OBJECTS = """table chair lamp book phone cup door key box ring coat hat shoe bag pen clock bottle window garden bridge
river mountain train ship plane road wheel stone paper glass""".split()
NATURE = """sun moon star rain snow wind cloud tree leaf flower grass sand sea lake hill gold silver iron wood fire salt
sugar bread milk rice egg soup tea coffee cake music song story dream night day week month year hand foot eye ear nose
king queen friend child""".split()
WORDS = sorted(set(ANIMALS + FRUITS + COLORS + OBJECTS + JOBS + NATURE))
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()
CHINESE_DAYS = "星期一 星期二 星期三 星期四 星期五 星期六 星期日".split()
SYLLABLES = """ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re ri ro ru
sa se si so su ta te ti to tu za ze zi zo zu""".split()


def made_up_name(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice([2, 3]))).capitalize()


def is_chinese(text):
    return any("\u4e00" <= char <= "\u9fa5" for char in text)
