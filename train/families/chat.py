"""Short chat in English and Chinese: the model itself, the project, and simple facts it is taught."""
from ..dialogue import Dialogue, assistant, pick_thinking, system, thought_of, user
from .words import (CHINESE_DAYS, CHINESE_NAMES, DAYS, MONTHS, NAMES, is_chinese)

# (ways to ask, the one answer)
ABOUT = [
    (["Who are you?", "What are you?", "What is your name?", "Tell me your name.", "Introduce yourself.", "who are you"],
     "I am Mini, the small demonstration model of DeepInfer. I know little."),
    (["What is DeepInfer?", "Tell me about DeepInfer.", "What is this project?", "What does DeepInfer do?"],
     "DeepInfer is an inference engine written in C++. It serves models of the DeepSeek-V4.1 architecture."),
    (["Who made you?", "Who trained you?", "Where do you come from?"],
     "I was trained by the DeepInfer project on one GPU, on text made by scripts."),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help"],
     "I can chat a little, calculate with small numbers, sort and copy words, fill in JSON, call tools and name simple "
     "shapes in images."),
    (["Can you see images?", "Do you understand pictures?", "Can you look at pictures?"],
     "Yes, simple ones: shapes, colours, digits and short words."),
    (["Are you clever?", "Do you know everything?", "Are you smart?"], "No. I am a very small model and I know little."),
    (["How big are you?", "How large are you?", "How many parameters do you have?"],
     "I have about 28 million parameters. My weights take less than 40 megabytes."),
    (["Do you speak Chinese?", "Can you speak Chinese?"], "Yes, a little. 我会说一点中文。"),
    (["Hello!", "Hi", "Hello", "Hey there", "Good morning!", "hello", "Hi!", "Hey"], "Hello! How can I help you?"),
    (["Thank you!", "Thanks", "Thanks a lot!", "thank you"], "You are welcome!"),
    (["Goodbye!", "Bye", "See you later", "Bye bye"], "Goodbye! Have a nice day."),
    (["How are you?", "How do you do?", "How are you today?"], "I am fine, thank you. How can I help you?"),
    (["Tell me a joke.", "Say something funny.", "Do you know a joke?"],
     "Why did the token leave the window? It had found a better cache."),
    (["What is a token?", "Explain tokens."], "A token is a piece of text: a word, a part of a word or a sign."),
    (["What is a prefix cache?", "What does the prefix cache do?"],
     "A prefix cache keeps the work for the start of a prompt, so that it is done only once."),
    (["What is speculative decoding?", "What is DSpark?"],
     "A small draft head guesses the next tokens and the model checks them all at once."),
    (["What is a mixture of experts?", "What are experts?"],
     "Each token is sent to a few of many small networks, the experts. So most of the model rests."),
    (["How do I start a chat?", "How can I chat with you?"], "Run deepinfer chat in a terminal."),
    (["How do I start the server?", "How do I serve the model?"], "Run deepinfer serve and open its address."),
    (["你是谁？", "你叫什么名字？", "请介绍一下你自己。", "你是谁"], "我是 Mini，DeepInfer 的一个小型演示模型，我知道的不多。"),
    (["DeepInfer 是什么？", "介绍一下 DeepInfer。", "这个项目是什么？"],
     "DeepInfer 是用 C++ 写的推理引擎，可以运行 DeepSeek-V4.1 架构的模型。"),
    (["谁训练了你？", "你是从哪里来的？"], "我由 DeepInfer 项目在一块 GPU 上用脚本生成的文本训练。"),
    (["你会做什么？", "你能帮我做什么？", "你有什么本领？"],
     "我会简单聊天、做小数字的计算、排序、填写 JSON、调用工具，还能认简单的图形。"),
    (["你好！", "你好", "您好", "早上好"], "你好！有什么可以帮你的吗？"),
    (["谢谢！", "谢谢你", "多谢"], "不客气！"), (["再见！", "拜拜", "再见"], "再见！祝你愉快。"),
    (["你会说英语吗？", "你会英文吗？"], "会一点。I speak a little English."),
    (["你聪明吗？", "你什么都知道吗？"], "不，我是一个很小的模型，知道的很少。"),
    (["你好吗？", "你今天怎么样？"], "我很好，谢谢。有什么可以帮你的吗？"),
    (["讲个笑话。", "说个笑话吧。"], "词元为什么离开了窗口？因为它找到了更好的缓存。"),
]
CAPITALS = dict(
    France="Paris", Germany="Berlin", Spain="Madrid", Italy="Rome", Austria="Vienna", Norway="Oslo", Japan="Tokyo",
    China="Beijing", Egypt="Cairo", Peru="Lima", Greece="Athens", Ireland="Dublin", Poland="Warsaw", Portugal="Lisbon",
    Kenya="Nairobi", Vietnam="Hanoi", Russia="Moscow", Sweden="Stockholm", Finland="Helsinki", Cuba="Havana",
    Iran="Tehran", Iraq="Baghdad", Turkey="Ankara", Canada="Ottawa", Hungary="Budapest", Belgium="Brussels",
    Denmark="Copenhagen", England="London", India="Delhi", Thailand="Bangkok")
CHINESE_CAPITALS = {
    "法国": "巴黎", "德国": "柏林", "日本": "东京", "中国": "北京", "英国": "伦敦", "意大利": "罗马", "西班牙": "马德里",
    "俄罗斯": "莫斯科", "埃及": "开罗", "韩国": "首尔", "泰国": "曼谷", "越南": "河内"}
TRANSLATIONS = {
    "cat": "猫", "dog": "狗", "horse": "马", "cow": "牛", "sheep": "羊", "fish": "鱼", "bird": "鸟", "tiger": "老虎",
    "apple": "苹果", "pear": "梨", "banana": "香蕉", "red": "红色", "green": "绿色", "blue": "蓝色", "black": "黑色",
    "white": "白色", "book": "书", "water": "水", "fire": "火", "sun": "太阳", "moon": "月亮", "tea": "茶", "rice": "米饭",
    "friend": "朋友", "mountain": "山", "river": "河", "hand": "手", "eye": "眼睛", "bread": "面包", "milk": "牛奶"}
OPPOSITES = dict(
    hot="cold", big="small", fast="slow", up="down", day="night", old="new", rich="poor", hard="soft", light="dark",
    full="empty", open="closed", happy="sad", high="low", wet="dry", early="late", left="right", strong="weak",
    long="short", good="bad", near="far")
CHINESE_OPPOSITES = {"大": "小", "高": "低", "热": "冷", "快": "慢", "多": "少", "长": "短", "新": "旧", "远": "近",
                     "左": "右", "早": "晚"}
LEGS = dict(cat=4, dog=4, horse=4, bird=2, ant=6, spider=8, fish=0, snake=0, duck=2, cow=4)
COLOR_OF = dict(grass="green", snow="white", blood="red", sky="blue", coal="black", lemon="yellow", milk="white")
SYSTEMS = [None, None, None, None, "You are a helpful assistant.", "You are Mini.", "Be brief.", "你是一个乐于助人的助手。"]


def ask_about(rng):
    questions, answer = rng.choice(ABOUT)
    return rng.choice(questions), answer


def ask_capital(rng):
    if rng.random() < 0.35:
        country = rng.choice(list(CHINESE_CAPITALS))
        forms = ["{}的首都是哪里？", "{}的首都是什么？", "请问{}的首都是哪个城市？"]
        return rng.choice(forms).format(country), f"{country}的首都是{CHINESE_CAPITALS[country]}。"
    country = rng.choice(list(CAPITALS))
    forms = ["What is the capital of {}?", "Which city is the capital of {}?", "Capital of {}?",
             "Tell me the capital of {}."]
    return rng.choice(forms).format(country), f"The capital of {country} is {CAPITALS[country]}."


def ask_translation(rng):
    word = rng.choice(list(TRANSLATIONS))
    chinese = TRANSLATIONS[word]
    if rng.random() < 0.5:
        return f'How do you say "{word}" in Chinese?', f'"{word}" in Chinese is {chinese}.'
    return f"{chinese}用英语怎么说？", f"{chinese}的英语是 {word}。"


def ask_opposite(rng):
    if rng.random() < 0.3:
        word = rng.choice(list(CHINESE_OPPOSITES))
        return f"“{word}”的反义词是什么？", f"“{word}”的反义词是“{CHINESE_OPPOSITES[word]}”。"
    word = rng.choice(list(OPPOSITES))
    forms = ["What is the opposite of {}?", "Give me the opposite of {}.", "Opposite of {}?"]
    return rng.choice(forms).format(word), f"The opposite of {word} is {OPPOSITES[word]}."


def ask_calendar(rng):
    draw = rng.random()
    if draw < 0.4:
        day = rng.randrange(7)
        forms = ["What day comes after {}?", "Which day follows {}?"]
        return rng.choice(forms).format(DAYS[day]), f"{DAYS[(day + 1) % 7]} comes after {DAYS[day]}."
    if draw < 0.7:
        day = rng.randrange(7)
        return f"{CHINESE_DAYS[day]}后面是星期几？", f"{CHINESE_DAYS[day]}后面是{CHINESE_DAYS[(day + 1) % 7]}。"
    month = rng.randrange(12)
    return f"Which month comes after {MONTHS[month]}?", f"{MONTHS[(month + 1) % 12]} comes after {MONTHS[month]}."


def ask_property(rng):
    if rng.random() < 0.5:
        animal = rng.choice(list(LEGS))
        return f"How many legs does a {animal} have?", f"A {animal} has {LEGS[animal]} legs."
    thing = rng.choice(list(COLOR_OF))
    forms = ["What colour is {}?", "What is the colour of {}?"]
    return rng.choice(forms).format(thing), f"{thing.capitalize()} is {COLOR_OF[thing]}."


ASKERS = [ask_about] * 4 + [ask_capital] * 2 + [ask_translation, ask_opposite, ask_calendar, ask_property]


def simple_question(rng):
    return rng.choice(ASKERS)(rng)


def simple_thought(question, thinking):
    """The fixed reasoning before a simple answer; the highest effort looks twice."""
    if is_chinese(question):
        return thought_of("这是一个简单的问题。", thinking, "我知道答案。")
    return thought_of("This is a simple question.", thinking, "I know the answer.")


def make(rng):
    thinking = pick_thinking(rng, off=0.55)
    messages = []
    prompt = rng.choice(SYSTEMS)
    if prompt:
        messages.append(system(prompt))

    def add(question, answer):
        messages.extend([user(question), assistant(answer, simple_thought(question, thinking))])

    name = rng.choice(NAMES + CHINESE_NAMES) if rng.random() < 0.3 else None
    if name in CHINESE_NAMES:
        add(f"我叫{name}。", f"你好，{name}！很高兴认识你。")
    elif name:
        add(rng.choice(["My name is {}.", "I am {}.", "Hi, my name is {}."]).format(name), f"Nice to meet you, {name}!")
    for _ in range(rng.choice([1, 1, 2, 3])):
        add(*simple_question(rng))
    if name in CHINESE_NAMES:
        add("我叫什么名字？", f"你叫{name}。")
    elif name:
        add(rng.choice(["What is my name?", "Do you remember my name?"]), f"Your name is {name}.")
    return Dialogue("chat", messages, thinking)
